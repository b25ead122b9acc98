"""Records of people, projects, keys, links, and of what they did."""
