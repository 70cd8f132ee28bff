package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/foreign"
)

// A system is a layout with a name.
type system struct {
	foreign.System
	short string // the name that --layout takes; empty for a layout that is not a preset
}

// presets returns the named layouts of this library and of other systems.
func presets() []system {
	list := []system{
		{foreign.System{Name: "uidplugin", Layout: generator.DefaultLayout()}, "default"},
		{foreign.System{Name: "uidplugin, 53 bits", Layout: generator.JSSafeTablesLayout()}, "jssafetables"},
		{foreign.System{Name: "uidplugin, 53 bits, few worker ids", Layout: generator.JSSafeLayout()}, "jssafe"},
	}
	short := map[string]string{
		"Twitter snowflake, Leaf": "snowflake", "UidGenerator": "uidgenerator",
		"UidGenerator, sample configuration": "uidgenerator-sample", "Discord": "discord", "Instagram": "instagram",
		"yitter IdGenerator": "yitter", "sonyflake v2": "sonyflake", "sonyflake v1": "sonyflake1",
	}
	for _, s := range foreign.Systems() {
		list = append(list, system{s, cmp.Or(short[s.Name], strings.ToLower(s.Name))})
	}
	return list
}

// presetNames returns the values of --layout.
func presetNames() []string {
	var names []string
	for _, s := range presets() {
		names = append(names, s.short)
	}
	return names
}

// parseSystem parses a layout: the name of a preset, or a text as in WORKER_REGISTRY.
func parseSystem(text string) (system, error) {
	list := presets()
	if i := slices.IndexFunc(list, func(s system) bool { return strings.EqualFold(s.short, text) }); i >= 0 {
		return list[i], nil
	}
	l, err := generator.ParseLayout(text)
	if err != nil {
		return system{}, fmt.Errorf("%w; or name one of %s", err, strings.Join(presetNames(), ", "))
	}
	return system{System: foreign.System{Name: "uidplugin", Layout: l}}, nil
}

func layoutFlag(c *cobra.Command, layout *string) {
	c.Flags().StringVar(layout, "layout", "", "the layout: a name such as default or jssafetables, or a text such as "+
		"1-41-18-4/1ms@1514764800")
	_ = c.RegisterFlagCompletionFunc("layout", cobra.FixedCompletions(presetNames(), cobra.ShellCompDirectiveNoFileComp))
}
