"""The shared language of Swathmill: requests, tasks, attempts, the store, blobs and queues."""
