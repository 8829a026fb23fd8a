// Command critest runs the CRI conformance suite against a built crib, in
// namespaces of its own and without any image registry: a local one answers for
// all of them, with images made by the scripts of --images.
//
// The specs that do not pass yet are listed in known.tsv, each with its reason.
// It fails when another one fails, and also when a listed one passes: then the
// list is wrong. The last line it prints is "critest: N passed, N failed, N skipped".
package main
