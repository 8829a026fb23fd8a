// Package config reads the daemon's configuration: a TOML file and the drop-ins
// beside it.
//
// # Promise
//
// [Load] reads config.toml and then conf.d/*.toml in the same directory, in
// lexical order; of a key that several files set the last one counts, lists as a
// whole. What the command line has ([Flags]) wins over them. No file at all is
// fine: every key has a default. What Load returns
// without an error can be used as it is. Errors tell all that is wrong at once,
// each as "file:line: key: what is wrong and what would be right".
//
// # Types
//
//   - [Config]: what is configured, each key a field
//   - [Origins]: which file or flag set a key, for `crib config dump`
//
// # Invariants
//
//   - An unknown key is an error: a misspelt one must not pass for a default.
//   - Each file begins with version = 1, so that a later format can be told
//     apart before it is understood.
//   - [WriteDefault] shows every key with its default; read back it is [Default].
//   - What [Dump] writes can be read back and gives the same values.
//
// # After a crash
//
// Nothing is kept; the files are read again.
//
// # Decisions
//
//  1. One table of keys (keys.go) reads, checks and shows them. Rejected: struct
//     tags and go-toml's strict decoding, whose messages name Go types, and which
//     does not tell which keys a file sets. Consequence: a new key is a field, a
//     line in the table and a paragraph in default.toml; a test compares them.
//  2. Line numbers come from go-toml's syntax tree, which it calls unstable: no
//     other parser gives them for keys. It is used in one function.
//  3. Nothing outside of the files is looked at: whether a group or a directory
//     exists is for those to say who use it, when they do.
//  4. The socket of CRI at containerd's path serves containerd's API as well, unless
//     engine.listen says otherwise: who writes that path wants what is found there,
//     and a kubelet whose cAdvisor meets CRI alone has no figures of pods. Rejected:
//     asking for both keys; one for that alone.
package config
