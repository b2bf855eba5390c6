"""Tables and pictures of plans: options, differences, devices, the HTML of a notebook."""
