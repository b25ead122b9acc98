"""What players load of a film: files and playlists, and how far it can be played."""
