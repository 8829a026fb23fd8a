package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repeat returns a line n times, in which %d stands for its number.
func repeat(n int, line string) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strings.ReplaceAll(line, "%d", strconv.Itoa(i)) + "\n")
	}
	return text.String()
}

// nested returns n ifs in each other.
func nested(n int) string {
	return strings.Repeat("if x {\n", n) + strings.Repeat("}\n", n)
}

func TestEachBudgetFindsWhatIsOverIt(t *testing.T) {
	const record, acting = "type record struct {\n", "type actor struct {\n"
	const method = "func (a *actor) act() {}\n"
	const exported = "// F%d is told.\nfunc F%d() {}\n"
	tests := []struct {
		key         string
		under, over string
	}{
		{"lines p.f", "func f() {\n" + repeat(58, "_ = %d") + "}\n", "func f() {\n" + repeat(59, "_ = %d") + "}\n"},
		{"file p.sample.go", repeat(398, ""), repeat(399, "")},
		{"exported p", repeat(20, exported), repeat(21, exported)},
		{"exported p", repeat(19, exported) + "// T is told.\ntype T int\n// Name is told.\nfunc (T) Name() {}\n", repeat(20, exported) + "// T is told.\ntype T int\n"},
		{"fields p.actor", acting + repeat(8, "f%d int") + "}\n" + method, acting + repeat(9, "f%d int") + "}\n" + method},
		{"fields p.actor", acting + repeat(8, "f%d int") + "}\n", acting + repeat(8, "f%d int") + "mu sync.Mutex\n}\n"},
		{"fields p.actor", acting + repeat(8, "f%d int") + "}\n", acting + repeat(8, "f%d int") + "done chan int\n}\n"},
		{"fields p.record", record + repeat(14, "f%d int") + "}\n", record + repeat(15, "f%d int") + "}\n"},
		{"fields p.record", record + repeat(14, "f%d int") + "}\n", record + "in struct {\n" + repeat(15, "f%d int") + "}\n}\n"},
		{"fields p.actor", acting + repeat(14, "f%d int `json:\"f%d\"`") + "}\n" + method, acting + repeat(14, "f%d int") + "}\n" + method},
		{"parameters p.f", "func f(ctx context.Context, a, b, c, d int) {}\n", "func f(ctx context.Context, a, b, c, d, e int) {}\n"},
		{"methods p.doer", "type doer interface {\n" + repeat(5, "f%d()") + "}\n", "type doer interface {\n" + repeat(6, "f%d()") + "}\n"},
		{"nesting p.f", "func f() {\n" + nested(3) + "}\n", "func f() {\n" + nested(4) + "}\n"},
		{"nesting p.f", "func f() {\nif a {\n} else if b {\n" + nested(2) + "} else if c {\n}\n}\n", "func f() {\nif a {\n} else if b {\n" + nested(3) + "}\n}\n"},
		{"nesting p.f", "func f() {\nif a {\nfunc() {\n" + nested(3) + "}()\n}\n}\n", "func f() {\nfor {\nswitch {\ncase a:\n" + nested(2) + "}\n}\n}\n"},
		{"doc p.F", "// F is told.\nfunc F() {}\n", "func F() {}\n"},
		{"doc p.T.F", "// F is told.\nfunc (*T) F() {}\n// T is told.\ntype T int\n", "func (*T) F() {}\n// T is told.\ntype T int\n"},
		{"doc p.T", "// T is told.\ntype T int\n", "type T int\n"},
		{"doc p.C", "// The two.\nconst (\nC = 1\nD = 2\n)\n", "const (\nC = 1\n)\n"},
		{"doc p.C", "const (\nC = 1 // is one\n)\n", "const C = 1\n"},
	}
	for i, test := range tests {
		t.Run(fmt.Sprint(i, " ", test.key), func(t *testing.T) {
			if found := sample(t, test.under); len(found) > 0 {
				t.Errorf("under the budget, found %v", found)
			}
			found := sample(t, test.over)
			if !slices.ContainsFunc(found, func(f finding) bool { return f.key == test.key }) {
				t.Errorf("over the budget, found %v, want %q", found, test.key)
			}
		})
	}
}

// sample checks a package of one file and a good doc.go.
func sample(t *testing.T, body string) []finding {
	t.Helper()
	return checkBudgets(writeSource(t, map[string]string{
		"p/doc.go":    "// Package p is a sample.\npackage p\n",
		"p/sample.go": "package p\n\n" + body,
	}))
}

func TestAPackageWithoutItsDocFileIsFound(t *testing.T) {
	found := checkBudgets(writeSource(t, map[string]string{
		"o/o.go":      "// Package o is one file.\npackage o\n",
		"p/more.go":   "package p\n",
		"p/p.go":      "// Package p has its comment elsewhere.\npackage p\n",
		"q/doc.go":    "package q\n",
		"r/r_test.go": "package r\n",
	}))
	var keys []string
	for _, f := range found {
		keys = append(keys, f.key)
	}
	slices.Sort(keys)
	if want := []string{"doc.go p", "doc.go q"}; !slices.Equal(keys, want) {
		t.Errorf("found %q, want %q", keys, want)
	}
}

func TestTestsAreBoundInLengthOnly(t *testing.T) {
	found := checkBudgets(writeSource(t, map[string]string{
		"p/p_test.go": "package p\n\nfunc Wide(a, b, c, d, e int) {\n" + nested(5) + repeat(60, "_ = %d") + "}\n",
	}))
	if len(found) != 1 || found[0].key != "lines p.Wide" {
		t.Errorf("found %v, want its length only", found)
	}
}

func TestAnExceptionExcusesOneBreachAndFailsWhenUnused(t *testing.T) {
	found := []finding{{key: "lines p.f"}, {key: "lines p.g"}}
	left := unexcused(found, map[string]string{"lines p.f": "a table", "lines p.h": "gone"})
	if len(left) != 2 || left[0].key != "lines p.g" || left[1].key != "lines p.h" {
		t.Errorf("left %v, want p.g and the unused p.h", left)
	}
}

func TestGeneratedAndForeignCodeIsNotRead(t *testing.T) {
	files := writeSource(t, map[string]string{
		"p/p.go":            "package p\n",
		"p/zz.go":           "// Code generated by a tool. DO NOT EDIT.\n\npackage p\n",
		"p/testdata/x.go":   "package x\n",
		"tools/go.mod":      "module tools\n",
		"tools/tools.go":    "package tools\n",
		".hidden/hidden.go": "package hidden\n",
	})
	if len(files) != 1 || files[0].path != "p/p.go" {
		t.Errorf("read %d files, want p/p.go only", len(files))
	}
}
