"""Starting Spark in this process, and what it says when it fails.

java          finds a Java that Spark can run on, down to the one pip installs
java_classes  an archive of Java's classes, so that later Sparks start sooner
rehearsal     loads the classes that go into that archive
session       a Spark for one pipeline, embedded or on a cluster
failures      Spark's errors, as one line with the innermost cause
"""
