"""Tables, blobs and the queue on Azure Storage or Azurite."""
