"""Self-contained HTML pages: templates, a script and a style sheet for each kind, and vendored libraries, in one file.

page.py puts a page together; one module for each kind of page says what its data is.
"""
