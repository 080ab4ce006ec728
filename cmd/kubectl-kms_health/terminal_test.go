package main

import "testing"

func TestWidth(t *testing.T) {
	terminal := func() int { return 100 }
	for name, tt := range map[string]struct {
		terminal func() int
		columns  string
		output   string
		want     int
	}{
		"no terminal":                  {nil, "", "", defaultWidth},
		"no terminal, but COLUMNS":     {nil, "50", "", defaultWidth},
		"a terminal":                   {terminal, "", "", 100},
		"a terminal and COLUMNS":       {terminal, "50", "", 50},
		"a terminal and wrong COLUMNS": {terminal, "wide", "", 100},
		"a terminal of unknown width":  {func() int { return 0 }, "", "", defaultWidth},
		"wide":                         {terminal, "", "wide", 1<<31 - 1},
	} {
		o := options{output: tt.output, environment: environment{terminal: tt.terminal, getenv: func(variable string) string {
			return map[string]string{"COLUMNS": tt.columns}[variable]
		}}}
		if got := o.show().Width; got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
