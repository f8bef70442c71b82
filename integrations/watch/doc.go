// Package watch remembers what a registry forgets: how many calls there were in the
// last minutes, and what breakers did in the last hour.
//
// A registry counts since it was made. A [Watcher] reads its summary every few seconds
// and subtracts, so calls pay nothing for rates; and it hears of transitions, which are
// rare. It starts no goroutine and no timer: call [Watcher.Run] in a goroutine of your
// own, or it samples only when it is read.
//
// What it keeps is bounded. Of each tool that is called: its counters and histograms of how
// long calls took at each minute of the last ten, from which windows are made; minutes in
// which nothing happens take no room. Of the first 1,000 of them, besides: what happened
// between two samples in the last ten minutes, at most 600 samples. An hour of events, at
// most 240 of a tool or group (50 once there are 50,000 in all), and a history of 500
// events of all. 5,000 tools at most are watched. With samples 5s apart a busy tool takes
// 4 to 8 KB, one that flapped for an hour 35 KB more, and one that is not called 300 bytes.
package watch
