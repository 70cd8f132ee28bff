//go:build race

package uidplugin_test

// racing tells whether the race detector is on; it makes pools forget, and so
// allocations differ.
const racing = true
