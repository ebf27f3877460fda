"""Reports as text, JSON, pages and files of other programs."""
