"""Libraries of others, unmodified, with their licences: versions.json."""
