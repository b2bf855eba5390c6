"""What only matmul and its gradients ask of a product: elements, weights alpha and beta, views for gradients, tuned keys."""
