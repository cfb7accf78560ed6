"""Messages for an arbitrary time: timer wheel service, delivery, recall."""
