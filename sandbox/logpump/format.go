package logpump

import "bytes"

// maxLine is how much text a log line holds; more is cut into parts.
const maxLine = 16 << 10

// Tags of log lines.
const (
	tagFull = 'F'
	tagPart = 'P'
)

// lines makes log lines of one stream's output. The zero value with a stream's
// name works.
type lines struct {
	stream string
	held   []byte // of a line that has not ended, at most maxLine
}

// feed appends to dst the log lines that p completes.
func (l *lines) feed(dst, p, stamp []byte) []byte {
	for len(p) > 0 {
		text, rest, ended := bytes.Cut(p, []byte{'\n'})
		p = rest
		if ended && len(l.held) == 0 && len(text) <= maxLine {
			dst = l.line(dst, stamp, tagFull, text)
			continue
		}
		dst = l.hold(dst, text, stamp)
		if ended {
			dst = l.flush(dst, stamp, tagFull)
		}
	}
	return dst
}

// hold keeps text for later and appends to dst the parts that are full by it.
func (l *lines) hold(dst, text, stamp []byte) []byte {
	for len(l.held)+len(text) > maxLine {
		n := maxLine - len(l.held)
		l.held = append(l.held, text[:n]...)
		dst, text = l.flush(dst, stamp, tagPart), text[n:]
	}
	l.held = append(l.held, text...)
	return dst
}

// flush appends what is held as a line, also if that is nothing.
func (l *lines) flush(dst, stamp []byte, tag byte) []byte {
	dst = l.line(dst, stamp, tag, l.held)
	l.held = nil // most lines are whole: the memory is better given back
	return dst
}

// end appends the line that the stream's end has left unfinished.
func (l *lines) end(dst, stamp []byte) []byte {
	if len(l.held) == 0 {
		return dst
	}
	return l.flush(dst, stamp, tagPart)
}

func (l *lines) line(dst, stamp []byte, tag byte, text []byte) []byte {
	dst = append(dst, stamp...)
	dst = append(dst, ' ')
	dst = append(dst, l.stream...)
	dst = append(dst, ' ', tag, ' ')
	dst = append(dst, text...)
	return append(dst, '\n')
}
