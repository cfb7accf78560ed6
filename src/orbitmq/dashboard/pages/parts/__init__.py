"""Parts that several pages have: forms, settings of a server, one member, a trace."""
