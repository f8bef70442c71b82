// Package watch remembers what a registry forgets: how many calls there were in the
// last minutes, and what breakers did in the last hour.
//
// A registry counts since it was made. A [Watcher] reads its summary every few seconds
// and subtracts, so calls pay nothing for rates; and it hears of transitions, which are
// rare. It starts no goroutine and no timer: call [Watcher.Run] in a goroutine of your
// own, or it samples only when it is read.
//
// What it keeps is bounded: ten minutes of samples, at most 600, for each tool that was
// called in that time; an hour of events, at most 240 of a tool (50 once there are 50,000
// in all); a history of 500 events; and of tools that have left the registry that
// history only. With samples 5s apart a busy tool takes 4 KB, one that flapped for an hour
// 35 KB more, and one that is not called 200 bytes.
package watch
