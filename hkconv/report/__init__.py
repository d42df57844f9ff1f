"""What the results store comes to: cells, statistics, tables, and the report in Markdown, HTML and figures."""
