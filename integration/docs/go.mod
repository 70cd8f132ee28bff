module github.com/uidplugin/uidplugin/integration/docs

go 1.25.0

require github.com/yuin/goldmark v1.8.7
