//go:build !race

package uidplugin_test

const racing = false
