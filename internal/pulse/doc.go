// Package pulse has periodic work of an idle process fall together. Each wake-up of a process costs
// more than most of that work.
package pulse
