package mcpgohealth

import "strings"

// separator is what stands between the names of a server and a tool. It is the
// GroupSeparator of a guard whose tools are to be in groups.
const separator = "/"

// join returns the name by which the guard knows a tool.
func join(server, tool string) string {
	if server == "" {
		return tool
	}
	return server + separator + tool
}

// split is the inverse of join.
func split(name string) (server, tool string) {
	server, tool, ok := strings.Cut(name, separator)
	if !ok {
		return "", name
	}
	return server, tool
}
