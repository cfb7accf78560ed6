"""Building blocks of pages: frame, cards, tables, charts, dialogs. They know no subject."""
