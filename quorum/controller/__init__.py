"""The controller's decisions: pure functions from an image and a command to records, a reply and a story.

`controller.Controller` is the front, and `views` shows an image to admins. The rooms behind:

    protocol     commands, decisions, happenings, remembered requests
    topics       topics and their partitions, created, grown and deleted; configs
    brokers      registrations, sessions, contacts, fencing, controlled shutdowns
    features     the levels on which all nodes agree, registrations of controllers
    partitions   placement, elections, ISR changes, walks over the partitions of a broker
"""
