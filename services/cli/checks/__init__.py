"""`envwheel env check`: any Harbor task through the gates, with verdicts that people can read."""
