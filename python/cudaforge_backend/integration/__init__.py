"""Where PyTorch is touched: graph analysis, partition, the graph pass, forging and the backend."""
