// Package watch remembers what a registry forgets: how many calls there were in the
// last minutes, and what breakers did in the last hour.
//
// A registry counts since it was made. A [Watcher] reads its summary every few seconds
// and subtracts, so calls pay nothing for rates; and it hears of transitions, which are
// rare. It starts no goroutine and no timer: call [Watcher.Run] in a goroutine of your
// own, or it samples only when somebody looks.
//
// What it keeps is bounded: ten minutes of samples, at most 600, for each tool that was
// called in that time, 50 transitions of a tool, 500 in all, and nothing of tools that
// have left the registry but those 500. That is at most 10 KB a tool with samples 5s
// apart, and 100 bytes for a tool that nobody calls.
package watch
