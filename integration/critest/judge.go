package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// spec is one test of the suite.
type spec struct {
	name    string
	state   string // "passed", "failed", "skipped", …
	message string
}

// readReport reads ginkgo's report.
func readReport(path string) ([]spec, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var specs []spec
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			specs = append(specs, spec{name, r.State, r.Failure.Message})
		}
	}
	slices.SortFunc(specs, func(a, b spec) int { return strings.Compare(a.name, b.name) })
	return specs, nil
}

// readKnown reads the list of specs that do not pass: name, tab, reason.
func readKnown(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	known := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, "\t")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		known[name] = reason
	}
	return known, lines.Err()
}

// judge prints what does not pass and the sums. It is an error if a spec that is
// not listed fails, or if one that is listed passes or, in a whole run, is gone.
func judge(w io.Writer, specs []spec, list string, part bool) error {
	known, err := readKnown(list)
	if err != nil {
		return err
	}
	var passed, failed, skipped int
	var errs []error
	for _, s := range specs {
		reason, listed := known[s.name]
		delete(known, s.name)
		switch s.state {
		case "passed":
			passed++
			if listed {
				errs = append(errs, fmt.Errorf("passes, but is listed as one that does not: %s", s.name))
			}
		case "skipped", "pending":
			skipped++
		default:
			failed++
			if !listed {
				errs = append(errs, fmt.Errorf("%s: %s\n    %s", s.state, s.name, firstLines(s.message)))
			}
			fmt.Fprintf(w, "%s: %s (%s)\n", s.state, s.name, reason)
		}
	}
	if !part {
		for name := range known {
			errs = append(errs, fmt.Errorf("listed, but there is no such spec: %s", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(w, err)
	}
	fmt.Fprintf(w, "critest: %d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if len(errs) > 0 {
		return errUnexpected
	}
	return nil
}

// errUnexpected says that the list and the run differ; judge has printed how.
var errUnexpected = errors.New("not what known.tsv says")

// firstLines is enough of a message to know what it is about.
func firstLines(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	return strings.Join(lines[:min(len(lines), 6)], "\n    ")
}
