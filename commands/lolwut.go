// LOLWUT, which people type first.

package commands

// lolwutText is what coordd does, at a glance.
const lolwutText = `
        .-----.          .-----.
        |  1  |----------|  2  |
        '-----'\        /'-----'
                \      /
                .------.
                |  3   |
                '------'

  two have it written down: it happened

Redis ver. ` + RedisVersion + `
`

func lolwutCommand(x *Call) error {
	if len(x.Args) > 2 && isWord(x.Args[1], "VERSION") {
		if _, ok := ParseInt(x.Args[2]); !ok {
			return ErrNotInteger
		}
	}
	x.Out.Verbatim("txt", lolwutText)
	return nil
}
