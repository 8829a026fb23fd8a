// Package stream connects clients to processes in containers and to ports of pods:
// exec, attach and port-forward, over SPDY and WebSocket, with the protocols of
// k8s.io/cri-streaming. It knows no containers; it is handed what runs them.
//
// # Promises
//
//   - A URL is good for one connection and for a minute; its token cannot be guessed.
//   - The listener is bound when [New] returns, so that URLs are true, and is on the
//     loopback unless told otherwise: whoever has a URL needs no other credentials.
//   - The exit code of a process reaches the client. The end of the client's
//     standard input is the end of the process's; its output goes on.
//   - A client that goes away ends what it has started: its process is killed, an
//     attachment and forwarded connections are closed. So does the end of the server.
//   - A forwarded connection that is refused or reset ends its own stream, not the
//     others of the session.
//   - [Server.Serve] returns when everything that it began has ended.
//
// # Types
//
// [Server] is the listener and the tokens. [Containers] is what runs processes.
//
// # On a crash
//
// Nothing is on disk. Clients lose their connections; the processes that they had
// started are the engine's to find.
//
// # Decisions
//
//  1. The handlers of cri-streaming are used, its server is not: that one tells
//     nobody when a client is gone, waits for nothing at its end, knows its address
//     only after it was asked for URLs, and brings a framework for three paths.
//  2. A refused or reset connection is told to the client by the reset of its stream
//     and to the operator by a line of the log, without a word on the error stream:
//     kubectl and crictl end the whole session at the first word on it, which made
//     restarts of a server in a pod end port-forwards (kubernetes 74551). Other
//     errors, as of a pod that is gone, are the whole session's and are told.
//  3. A client that goes away kills its process, even one that reads no input.
//     Rejected: letting it run on, as elsewhere; what nobody waits for stays for
//     ever. A process that is to outlive its client has to leave the exec's tree.
//  4. WebSocket is what the library has of it: v4 of exec and attach, and ports that
//     are named when the URL is asked for. It has no v5 and no tunnel of SPDY, so
//     clients that insist on them are refused with 403; kubelets speak SPDY as well.
package stream
