"""What users call: verbs, pages, exports, plugins, packages; and tools that test the tests' subjects for long."""
