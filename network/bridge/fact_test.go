package bridge

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each file has what is wanted, what is there, and what is to come of it.
func TestWhatIsWrongAndWhatIsToBeDone(t *testing.T) {
	files, err := filepath.Glob("testdata/compare/*.txt")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			sections := readSections(t, file)
			var got []string
			list := compare(parseWorld(t, sections["wanted"]), parseWorld(t, sections["actual"]))
			for _, d := range list {
				got = append(got, fmt.Sprintf("%s %s: %s", d.kind, d.object, d.text))
			}
			for _, a := range actions(list) {
				got = append(got, strings.TrimSpace("=> "+a.do+" "+a.object))
			}
			if want := strings.Join(sections["so"], "\n"); strings.Join(got, "\n") != want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
			}
		})
	}
}

// readSections returns the lines below each heading that ends in a colon.
func readSections(t *testing.T, file string) map[string][]string {
	f, err := os.Open(file)
	must(t, err)
	defer func() { _ = f.Close() }()
	sections, name := map[string][]string{}, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch heading, ok := strings.CutSuffix(line, ":"); {
		case line == "" || strings.HasPrefix(line, "#"):
		case ok:
			name = heading
		default:
			sections[name] = append(sections[name], line)
		}
	}
	return sections
}

// parseWorld reads lines of: kind, object, and properties with their values. A
// property alone, as "addr=10.9.0.2/24", has to be there.
func parseWorld(t *testing.T, lines []string) world {
	w := world{}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) < 3 {
			t.Fatalf("line %q", line)
		}
		for words, f := words[2:], (fact{words[0], words[1], ""}); len(words) > 0; {
			if key, addr, ok := strings.Cut(words[0], "="); ok {
				f.name, words = key+" "+addr, words[1:]
				w[f] = there
				continue
			}
			f.name = words[0]
			w[f] = words[1]
			words = words[2:]
		}
	}
	return w
}
