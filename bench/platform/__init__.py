"""`make bench ONLY=platform`: measure what the platform below the service can do.

The experiments are those of Hill et al., "Early observations on the performance of Windows Azure"
(Scientific Programming 19, 2011), and of Gillen's transfers (2010).
"""
