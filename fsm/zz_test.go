package fsm
import ("testing";"fmt";"github.com/coordd/coordd/commands")
func TestZZ(t *testing.T){ for _,s:=range testTable().All(){ p:=func(s *commands.Spec){ if s.Local!=nil {fmt.Println(s.FullName(),"::",s.Syntax, s.Handler!=nil)}}; if s.Subcommands==nil {p(s)}; for i:=range s.Subcommands {p(&s.Subcommands[i])}}}
