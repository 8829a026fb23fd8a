package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is the path that all of our own imports begin with.
const module = "github.com/crib-runtime/crib"

// sourceFile is a parsed Go file of this module.
type sourceFile struct {
	path string // from the module's root, with slashes
	dir  string // its package, as "network/nat"
	test bool
	set  *token.FileSet
	tree *ast.File
}

// finding is a breach of a rule.
type finding struct {
	key string // rule and object, as "lines network/nat.Open": what an exception names
	at  string // file and line
	say string // what is wrong and why it matters
}

// readSource parses the Go files below root, but for generated ones, test data
// and modules of their own.
func readSource(t *testing.T, root string) []sourceFile {
	t.Helper()
	var files []sourceFile
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(root, name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		tree, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(tree) {
			return err
		}
		files = append(files, newSourceFile(root, name, set, tree))
		return nil
	})
	if err != nil {
		t.Fatalf("reading source below %s: %v", root, err)
	}
	return files
}

// skipFolder returns fs.SkipDir for folders that are not part of the module.
func skipFolder(root, name string) error {
	if name == root {
		return nil
	}
	base := filepath.Base(name)
	if base == "testdata" || base == "build" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func newSourceFile(root, name string, set *token.FileSet, tree *ast.File) sourceFile {
	rel, _ := filepath.Rel(root, name)
	rel = filepath.ToSlash(rel)
	return sourceFile{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), set: set, tree: tree}
}

// line returns the line of a position.
func (f sourceFile) line(pos token.Pos) int { return f.set.Position(pos).Line }

// at returns the place of a position, as "network/nat/table.go:12".
func (f sourceFile) at(pos token.Pos) string { return f.path + ":" + strconv.Itoa(f.line(pos)) }

// imports returns the file's import paths by the name they have in it.
func (f sourceFile) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range f.tree.Imports {
		target, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(target)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = target
	}
	return names
}

// writeSource makes a source tree of the given files for a test of a rule.
func writeSource(t *testing.T, files map[string]string) []sourceFile {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return readSource(t, root)
}

// below says whether dir is the folder or below it; a pattern without "/..." means the folder alone.
func below(dir, pattern string) bool {
	folder, deep := strings.CutSuffix(pattern, "/...")
	return dir == folder || deep && strings.HasPrefix(dir, folder+"/")
}

// anyBelow says whether dir matches one of the patterns.
func anyBelow(dir string, patterns []string) bool {
	for _, pattern := range patterns {
		if below(dir, pattern) {
			return true
		}
	}
	return false
}
