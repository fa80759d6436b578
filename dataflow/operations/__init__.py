"""What is done to whole datasets: verify and describe them, exclude rows, merge, and export to other formats."""
