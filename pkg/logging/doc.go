// Package logging writes a process's log so that neither the log's reader nor the
// logged text can harm the process or the log.
//
// It guarantees:
//
//   - Logging never blocks. Entries go through a queue of bounded size. When the
//     reader of stderr stops reading, further entries are dropped, and a line with
//     their number is written when it reads again. A write error ends nothing.
//   - One entry is one line of at most 64 KiB. Control characters, line separators,
//     bidirectional controls and invalid UTF-8 inside an entry are escaped as
//     strconv.Quote escapes them, so that a value from outside cannot forge a line
//     or control a terminal.
//   - It applies to every logger of the process: klog (with -v and --vmodule),
//     the standard log package, log/slog's default logger, and gRPC.
//
// The Go runtime's output when the process crashes is not covered.
package logging
