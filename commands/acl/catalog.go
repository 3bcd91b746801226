// The commands that rules can name, and their categories.

package acl

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/coordd/coordd/internal/ascii"
)

// Categories is a set of categories of commands.
type Categories uint32

// categoryNames are the categories in Redis's order.
var categoryNames = [...]string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap",
	"hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous",
	"connection", "transaction", "scripting",
}

// categoryNumbers are the places of the categories in categoryNames.
var categoryNumbers = func() map[string]int {
	numbers := make(map[string]int, len(categoryNames))
	for i, name := range categoryNames {
		numbers[name] = i
	}
	return numbers
}()

// ParseCategory returns the set of one category, by its name in any case, or 0 if there is none.
func ParseCategory(name string) Categories {
	if i, ok := categoryNumbers[ascii.Lower(name)]; ok {
		return 1 << i
	}
	return 0
}

// CategoriesOf returns the set of the categories that words name. It panics at an unknown one:
// the names are the program's.
func CategoriesOf(words ...string) (c Categories) {
	for _, w := range words {
		one := ParseCategory(w)
		if one == 0 {
			panic(fmt.Sprintf("acl: unknown category %q", w))
		}
		c |= one
	}
	return c
}

// AllCategories is the set of all categories.
const AllCategories Categories = 1<<len(categoryNames) - 1

// Names returns the names of the categories in Redis's order.
func (c Categories) Names() []string {
	names := make([]string, 0, bits.OnesCount32(uint32(c)))
	for i, name := range categoryNames {
		if c>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// Command is what rules need to know of a command.
type Command struct {
	// Name is the full name in lower case: "get", "config|get". "": the number is not in use.
	Name       string
	Categories Categories
	// Container has subcommands, which follow it.
	Container bool
	// Always may be run by everybody: AUTH, HELLO, QUIT and RESET.
	Always bool
}

// Catalog is an immutable list of commands. A command's number is its index.
type Catalog struct {
	commands []Command
	numbers  map[string]int
	// all has every command, always those that everybody may run.
	all, always commandSet
	// own has the commands of each category. reach has besides the subcommands of containers in the
	// category: those that a rule about the category decides.
	own, reach [len(categoryNames)]commandSet
}

// NewCatalog makes a catalog. The subcommands of a container follow it.
func NewCatalog(commands []Command) *Catalog {
	c := &Catalog{commands: commands, numbers: make(map[string]int, len(commands))}
	c.all, c.always = c.none(), c.none()
	for k := range categoryNames {
		c.own[k], c.reach[k] = c.none(), c.none()
	}
	for i := range commands {
		command := &commands[i]
		if command.Name == "" {
			continue
		}
		c.numbers[command.Name] = i
		c.all.set(i, true)
		c.always.set(i, command.Always)
		for k := range categoryNames {
			if command.Categories>>k&1 == 1 {
				c.own[k].set(i, true)
				c.setCommand(c.reach[k], i, true)
			}
		}
	}
	return c
}

// none is a set without commands.
func (c *Catalog) none() commandSet { return make(commandSet, (len(c.commands)+63)/64) }

// find returns the number of a command, by its full name in any case, or -1.
func (c *Catalog) find(name string) int {
	if i, ok := c.numbers[ascii.Lower(name)]; ok {
		return i
	}
	return -1
}

// setCommand adds a command with its subcommands to a set, or removes them.
func (c *Catalog) setCommand(s commandSet, number int, on bool) {
	for i := number; i < number+c.family(number); i++ {
		s.set(i, on && c.commands[i].Name != "")
	}
}

// family is the number of commands that are a command and its subcommands.
func (c *Catalog) family(number int) int {
	if !c.commands[number].Container {
		return 1
	}
	n, prefix := 1, c.commands[number].Name+"|"
	for _, sub := range c.commands[number+1:] {
		if sub.Name != "" && !strings.HasPrefix(sub.Name, prefix) {
			break
		}
		n++
	}
	return n
}

// commandSet is a set of commands: a bit for each number.
type commandSet []uint64

func (s commandSet) has(number int) bool {
	return number>>6 < len(s) && s[number>>6]>>(number&63)&1 == 1
}

func (s commandSet) set(number int, on bool) {
	if bit := uint64(1) << (number & 63); on {
		s[number>>6] |= bit
	} else {
		s[number>>6] &^= bit
	}
}

// change adds all of t, or removes them.
func (s commandSet) change(t commandSet, on bool) {
	for i := range s {
		if on {
			s[i] |= t[i]
		} else {
			s[i] &^= t[i]
		}
	}
}

// common is the number of commands that both sets have.
func (s commandSet) common(t commandSet) (n int) {
	for i := range s {
		n += bits.OnesCount64(s[i] & t[i])
	}
	return n
}
