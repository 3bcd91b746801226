package commands

var scriptSpecs []Spec
