"""Pages and JSON: Flask blueprints that parse a request, call a use case and render the result."""
