"""Web page about a conversion: its inputs and outputs, its accuracy and its times."""
