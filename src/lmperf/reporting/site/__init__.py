"""The site: the write-ups and pages of all machines as HTML that needs no network and no server."""
