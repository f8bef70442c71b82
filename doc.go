// Package toolhealth keeps AI agents away from sick tools.
package toolhealth
