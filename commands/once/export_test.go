package once

// SetBounds lowers the bounds of what is remembered.
func (c *Calls) SetBounds(userCalls, bytes int) { c.maxUserCalls, c.maxBytes = userCalls, bytes }
