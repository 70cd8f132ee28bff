//go:build no_mysql

package main

import "gorm.io/gorm"

func openMySQL(string) (gorm.Dialector, error) { return nil, errLeftOut("no_mysql") }
