"""Reading of the results store: cells, statistics, tables, and the report in Markdown, HTML and figures."""
