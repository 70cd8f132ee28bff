package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// The document has each command, flag, code and name of a layout, and no others.
func TestDocument_HasCommandsFlagsAndCodes(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../docs/command.md")
	must(t, err)
	var known []string
	a := &app{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if len(c.Commands()) == 0 && !strings.Contains(string(text), c.CommandPath()) {
			t.Errorf("the document lacks %q", c.CommandPath())
		}
		known = append(known, regexp.MustCompile("--[a-z][a-z-]*").FindAllString(c.UsageString(), -1)...)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(a.command())
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]*").FindAllString(string(text), -1) {
		if !slices.Contains(known, flag) {
			t.Errorf("the document has the flag %s, which no command has", flag)
		}
	}
	for _, m := range regexp.MustCompile("`uid ((?:[a-z]+ ?)+)[ A-Z]*`").FindAllStringSubmatch(string(text), -1) {
		path := strings.Fields(m[1])
		if c, _, err := a.command().Find(path); err != nil || c.CommandPath() != "uid "+strings.Join(path, " ") && path[0] != "completion" {
			t.Errorf("the document has the command %q, which does not exist", m[0])
		}
	}
	for _, word := range append(admin.Codes, presetNames()...) {
		if !strings.Contains(string(text), "`"+word+"`") {
			t.Errorf("the document lacks %s", word)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(admin.Codes, m[1]) {
			t.Errorf("the document has the code %s, which the doctor does not have", m[1])
		}
	}
}
