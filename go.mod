module github.com/uidplugin/uidplugin

go 1.25.0
