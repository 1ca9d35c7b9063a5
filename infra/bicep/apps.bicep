// The processes of `swathmill up` and the reduction pool: portal, manager, workers, runners.
param location string
param name string
param image string
param workerImage string
param runnerImage string
param identityId string
param clientId string
param workerIdentityId string
param workerClientId string
param poolIdentityId string
param workspaceName string
param appSubnetId string
param storage string
param vaultUri string
param redisHost string
param redisPort int
param redisUrlSecretUri string
param redisKeySecretUri string
param smtpUrl string
param mailFrom string
param archiveServer string
param archiveShare string
param archiveUrl string
param sources string
param leastWorkers int
param mostWorkers int
param workersAsJobs bool
param workerPlaces array
param workloadProfiles array
param leastRunners int
param mostRunners int
param managers int
param registryServer string

@description('Attempts one worker replica runs at once; it has as many processors.')
param slots int

@description('Further settings by name, as in {SWATHMILL_RESULT_DAYS: 60}; docs/settings.md lists all.')
param settings object

var portalName = '${name}-portal'
var portalPort = 8000
var probePort = 8001
var runnerPort = 8002
var poolName = '${name}-reductions'
var hasPool = mostRunners > 0

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' existing = {
  name: workspaceName
}

var consumption = [
  {
    name: 'Consumption'
    workloadProfileType: 'Consumption'
  }
]

resource appEnvironment 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: '${name}-env'
  location: location
  properties: {
    vnetConfiguration: {
      infrastructureSubnetId: appSubnetId
      internal: false
    }
    workloadProfiles: concat(consumption, workloadProfiles)
    appLogsConfiguration: {
      destination: 'log-analytics'
      logAnalyticsConfiguration: {
        customerId: workspace.properties.customerId
        sharedKey: workspace.listKeys().primarySharedKey
      }
    }
  }
}

resource archive 'Microsoft.App/managedEnvironments/storages@2025-01-01' = if (!empty(archiveServer)) {
  parent: appEnvironment
  name: 'archive'
  properties: {
    nfsAzureFile: {
      server: archiveServer
      shareName: archiveShare
      accessMode: 'ReadOnly'
    }
  }
}

var portalUrl = 'https://${portalName}.${appEnvironment.properties.defaultDomain}'

var identity = {
  type: 'UserAssigned'
  userAssignedIdentities: {
    '${identityId}': {}
  }
}

var workerIdentity = {
  type: 'UserAssigned'
  userAssignedIdentities: {
    '${workerIdentityId}': {}
  }
}

var poolIdentity = {
  type: 'UserAssigned'
  userAssignedIdentities: {
    '${poolIdentityId}': {}
  }
}

// Without a server the image is public, and no identity pulls it.
var privateRegistry = [
  {
    server: registryServer
    identity: identityId
  }
]
var registries = empty(registryServer) ? [] : privateRegistry
var workerRegistries = empty(registryServer) ? [] : [
  {
    server: registryServer
    identity: workerIdentityId
  }
]

var poolRegistries = empty(registryServer) ? [] : [
  {
    server: registryServer
    identity: poolIdentityId
  }
]

var secrets = [
  {
    name: 'redis-url'
    keyVaultUrl: redisUrlSecretUri
    identity: identityId
  }
  {
    name: 'redis-key'
    keyVaultUrl: redisKeySecretUri
    identity: identityId
  }
  {
    name: 'earthdata-token'
    keyVaultUrl: '${vaultUri}secrets/earthdata-token'
    identity: identityId
  }
]
// The same, read by the identity of the workers.
var workerSecrets = [
  {
    name: 'redis-url'
    keyVaultUrl: redisUrlSecretUri
    identity: workerIdentityId
  }
  {
    name: 'redis-key'
    keyVaultUrl: redisKeySecretUri
    identity: workerIdentityId
  }
  {
    name: 'earthdata-token'
    keyVaultUrl: '${vaultUri}secrets/earthdata-token'
    identity: workerIdentityId
  }
]
var signingSecrets = [
  {
    name: 'signing-secret'
    keyVaultUrl: '${vaultUri}secrets/signing-secret'
    identity: identityId
  }
]
var oidcSecrets = [
  {
    name: 'oidc-client-secret'
    keyVaultUrl: '${vaultUri}secrets/oidc-client-secret'
    identity: identityId
  }
]
var mailSecrets = [
  {
    name: 'smtp-password'
    keyVaultUrl: '${vaultUri}secrets/smtp-password'
    identity: identityId
  }
]

var archiveFolder = empty(archiveServer) ? archiveUrl : '/archive'

// What may be set otherwise by the parameter `settings`. A replica of two processors has 8 GiB of disk: the
// cache may take 3 GB with unpacked packages and downloads that were cut, and the two attempts the rest.
var defaults = {
  SWATHMILL_PORTAL_URL: portalUrl
  SWATHMILL_ATTEMPT_MEMORY_GB: '1.8'
  SWATHMILL_ATTEMPT_DISK_GB: '1.8'
  SWATHMILL_CACHE_GB: '2'
  SWATHMILL_GRACE_SECONDS: '540'
  SWATHMILL_SCALE_IN_SECONDS: workersAsJobs ? '300' : '0' // replicas of an app are ended by the platform
  SWATHMILL_MAX_TASKS: '2000000'
  SWATHMILL_LOG_LEVEL: 'info'
  SWATHMILL_SANDBOX: 'limits' // a container of Container Apps can make no namespaces
  // The ingress calls the portal from the subnet of the apps, or from addresses that the platform keeps for itself.
  SWATHMILL_TRUSTED_PROXIES: '10.40.0.0/23,100.64.0.0/10'
}
// What the template knows. AZURE_CLIENT_ID tells Azure's SDKs which identity to use.
var known = {
  AZURE_CLIENT_ID: clientId
  SWATHMILL_DATA_DIR: '/data'
  SWATHMILL_STORAGE: storage
  SWATHMILL_ARCHIVE: archiveFolder
  SWATHMILL_SOURCES: sources
  SWATHMILL_PORTAL_ADDRESS: '0.0.0.0:${portalPort}'
  SWATHMILL_PROBE_ADDRESS: '0.0.0.0:${probePort}'
  SWATHMILL_SLOTS: string(slots)
}
var ofWorker = {
  AZURE_CLIENT_ID: workerClientId
  SWATHMILL_REDUCTION_POOL: hasPool ? '${poolName}:${runnerPort}' : ''
}
// All that a runner is told. It runs programs of others: no storage, no Redis, no secret.
var ofRunner = {
  SWATHMILL_DATA_DIR: '/data'
  SWATHMILL_RUNNER_ADDRESS: '0.0.0.0:${runnerPort}'
  SWATHMILL_PROBE_ADDRESS: '0.0.0.0:${probePort}'
  SWATHMILL_SLOTS: string(slots)
  SWATHMILL_ATTEMPT_MEMORY_GB: settings[?'SWATHMILL_ATTEMPT_MEMORY_GB'] ?? defaults.SWATHMILL_ATTEMPT_MEMORY_GB
  SWATHMILL_ATTEMPT_DISK_GB: settings[?'SWATHMILL_ATTEMPT_DISK_GB'] ?? defaults.SWATHMILL_ATTEMPT_DISK_GB
  SWATHMILL_CACHE_GB: settings[?'SWATHMILL_CACHE_GB'] ?? defaults.SWATHMILL_CACHE_GB
  SWATHMILL_GRACE_SECONDS: settings[?'SWATHMILL_GRACE_SECONDS'] ?? defaults.SWATHMILL_GRACE_SECONDS
  SWATHMILL_LOG_LEVEL: settings[?'SWATHMILL_LOG_LEVEL'] ?? defaults.SWATHMILL_LOG_LEVEL
  SWATHMILL_SANDBOX: settings[?'SWATHMILL_SANDBOX'] ?? defaults.SWATHMILL_SANDBOX
  SWATHMILL_NETWORK_HOSTS: settings[?'SWATHMILL_NETWORK_HOSTS'] ?? ''
}
var mailServer = {
  SWATHMILL_MAIL_FROM: mailFrom
}
// Without the server no mail is offered, neither by the portal nor by the manager.
var signingPlain = {
  SWATHMILL_SMTP_URL: smtpUrl
}

// Secrets go only where they are used.
var secretSettings = [
  {
    name: 'SWATHMILL_REDIS_URL'
    secretRef: 'redis-url'
  }
  {
    name: 'SWATHMILL_EARTHDATA_TOKEN'
    secretRef: 'earthdata-token'
  }
]
var secretSigning = [
  {
    name: 'SWATHMILL_SECRET'
    secretRef: 'signing-secret'
  }
]
var secretOidc = [
  {
    name: 'SWATHMILL_OIDC_CLIENT_SECRET'
    secretRef: 'oidc-client-secret'
  }
]
var secretMail = [
  {
    name: 'SWATHMILL_SMTP_PASSWORD'
    secretRef: 'smtp-password'
  }
]

var workerPlain = [for item in items(union(defaults, settings, known, ofWorker)): {
  name: item.key
  value: string(item.value)
}]
var portalPlain = [for item in items(union(defaults, settings, known, signingPlain)): {
  name: item.key
  value: string(item.value)
}]
var managerPlain = [for item in items(union(defaults, settings, known, signingPlain, mailServer)): {
  name: item.key
  value: string(item.value)
}]
var runnerPlain = [for item in items(ofRunner): {
  name: item.key
  value: string(item.value)
}]
var workerEnvironment = concat(workerPlain, secretSettings)
var portalEnvironment = concat(portalPlain, secretSettings, secretSigning, secretOidc)
var managerEnvironment = concat(managerPlain, secretSettings, secretSigning, secretMail)

// Of manager and worker. Storage that does not answer makes them unready and
// restarts nothing; a process whose rounds or beats have stopped is started again.
var probes = [
  {
    type: 'Startup'
    httpGet: {
      path: '/livez'
      port: probePort
    }
    periodSeconds: 20 // ten times are the most that Container Apps allows
    failureThreshold: 10
  }
  {
    type: 'Liveness'
    httpGet: {
      path: '/livez'
      port: probePort
    }
    periodSeconds: 30
    failureThreshold: 5
  }
  {
    type: 'Readiness'
    httpGet: {
      path: '/readyz'
      port: probePort
    }
    periodSeconds: 10
    failureThreshold: 3
  }
]

var scratch = {
  name: 'data'
  storageType: 'EmptyDir'
}
var scratchMount = {
  volumeName: 'data'
  mountPath: '/data'
}
var archiveVolumes = empty(archiveServer) ? [] : [
  {
    name: 'archive'
    storageType: 'NfsAzureFile'
    storageName: 'archive'
  }
]
var archiveMounts = empty(archiveServer) ? [] : [
  {
    volumeName: 'archive'
    mountPath: '/archive'
  }
]
var volumes = concat([scratch], archiveVolumes)
var mounts = concat([scratchMount], archiveMounts)

resource portal 'Microsoft.App/containerApps@2025-01-01' = {
  name: portalName
  location: location
  identity: identity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      secrets: concat(secrets, signingSecrets, oidcSecrets)
      registries: registries
      ingress: {
        external: true
        targetPort: portalPort
        transport: 'auto'
        allowInsecure: false
      }
    }
    template: {
      containers: [
        {
          name: 'portal'
          image: image
          command: [
            'python'
            '-P'
            '-m'
            'portal'
          ]
          env: portalEnvironment
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          volumeMounts: mounts
          probes: [
            {
              type: 'Readiness'
              httpGet: {
                path: '/readyz'
                port: probePort
              }
              periodSeconds: 10
            }
            {
              type: 'Liveness'
              httpGet: {
                path: '/livez'
                port: portalPort
              }
              periodSeconds: 30
              failureThreshold: 5
            }
          ]
        }
      ]
      scale: {
        minReplicas: 1
        maxReplicas: 3
      }
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}

resource manager 'Microsoft.App/containerApps@2025-01-01' = {
  name: '${name}-manager'
  location: location
  identity: identity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      secrets: concat(secrets, signingSecrets, mailSecrets)
      registries: registries
    }
    template: {
      containers: [
        {
          name: 'manager'
          image: image
          command: [
            'python'
            '-P'
            '-m'
            'service_manager'
          ]
          env: managerEnvironment
          resources: {
            cpu: json('1')
            memory: '2Gi'
          }
          volumeMounts: mounts
          probes: probes
        }
      ]
      scale: {
        minReplicas: managers
        maxReplicas: managers
      }
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}

var wantedSlots = [
  {
    name: 'wanted-slots'
    custom: {
      type: 'redis'
      metadata: {
        address: '${redisHost}:${redisPort}'
        listName: 'swathmill:wanted-slots'
        listLength: string(slots)
        enableTLS: 'true'
      }
      auth: [
        {
          triggerParameter: 'password'
          secretRef: 'redis-key'
        }
      ]
    }
  }
]

resource worker 'Microsoft.App/containerApps@2025-01-01' = {
  name: '${name}-worker'
  location: location
  identity: workerIdentity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      secrets: workerSecrets
      registries: workerRegistries
    }
    template: {
      // The longest that Container Apps allows: a replica that is scaled in finishes its attempts.
      terminationGracePeriodSeconds: 600
      containers: [
        {
          name: 'worker'
          image: workerImage
          command: [
            'python'
            '-P'
            '-m'
            'worker'
          ]
          env: workerEnvironment
          resources: {
            cpu: json(string(slots))
            memory: '${slots * 2}Gi'
          }
          volumeMounts: mounts
          probes: probes
        }
      ]
      // Without a rule and a least number there is no replica: workers are executions of the job then.
      scale: {
        minReplicas: workersAsJobs ? 0 : leastWorkers
        maxReplicas: workersAsJobs ? 1 : mostWorkers
        rules: workersAsJobs ? [] : wantedSlots
      }
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}

// Workers that no platform scales in: `swathmill fleet container-apps:ID` starts one execution for each that is
// wanted, and it ends when the manager has told it to, however long its attempts take.
resource workerJob 'Microsoft.App/jobs@2025-01-01' = if (workersAsJobs) {
  name: '${name}-worker-job'
  location: location
  identity: workerIdentity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      triggerType: 'Manual'
      manualTriggerConfig: {
        parallelism: 1
        replicaCompletionCount: 1
      }
      replicaRetryLimit: 0
      replicaTimeout: 604800 // a week, which no attempt reaches
      secrets: workerSecrets
      registries: workerRegistries
    }
    template: {
      containers: [
        {
          name: 'worker'
          image: workerImage
          // The manager's choice of who leaves goes by this name.
          command: [
            'sh'
            '-c'
            'SWATHMILL_WORKER_NAME=$CONTAINER_APP_JOB_EXECUTION_NAME exec python -P -m worker'
          ]
          env: workerEnvironment
          resources: {
            cpu: json(string(slots))
            memory: '${slots * 2}Gi'
          }
          volumeMounts: mounts
        }
      ]
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}

// Workers of places: the same image, secrets and settings; what is a place's own goes before the command. A package runs
// on the machine of its place, not in the reduction pool. An attempt may take nine tenths of its slot's memory.
var placeMemory = [for one in workerPlaces: one.memory * 9 / one.slots]
var placeSettings = [for (one, at) in workerPlaces: 'SWATHMILL_WORKER_PLACE=${one.place} SWATHMILL_SLOTS=${one.slots} SWATHMILL_ATTEMPT_MEMORY_GB=${placeMemory[at] / 10}.${placeMemory[at] % 10} SWATHMILL_REDUCTION_POOL=']

resource placeWorkers 'Microsoft.App/containerApps@2025-01-01' = [for (one, at) in workerPlaces: if (!workersAsJobs) {
  name: '${name}-at-${one.place}'
  location: location
  identity: workerIdentity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: one[?'profile'] ?? 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      secrets: workerSecrets
      registries: workerRegistries
    }
    template: {
      terminationGracePeriodSeconds: 600
      containers: [
        {
          name: 'worker'
          image: workerImage
          command: [
            'sh'
            '-c'
            '${placeSettings[at]} exec python -P -m worker'
          ]
          env: workerEnvironment
          resources: {
            cpu: json(string(one.processors))
            memory: '${one.memory}Gi'
          }
          volumeMounts: mounts
          probes: probes
        }
      ]
      scale: {
        minReplicas: one.least
        maxReplicas: one.most
        rules: [
          {
            name: 'wanted-slots'
            custom: {
              type: 'redis'
              metadata: {
                address: '${redisHost}:${redisPort}'
                listName: 'swathmill:wanted-slots:${one.place}'
                listLength: string(one.slots)
                enableTLS: 'true'
              }
              auth: [
                {
                  triggerParameter: 'password'
                  secretRef: 'redis-key'
                }
              ]
            }
          }
        ]
      }
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}]

// The same as executions that nobody scales in: `swathmill fleet container-apps:ID --for PLACE`.
resource placeJobs 'Microsoft.App/jobs@2025-01-01' = [for (one, at) in workerPlaces: if (workersAsJobs) {
  name: '${name}-at-${one.place}-job'
  location: location
  identity: workerIdentity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: one[?'profile'] ?? 'Consumption'
    configuration: {
      triggerType: 'Manual'
      manualTriggerConfig: {
        parallelism: 1
        replicaCompletionCount: 1
      }
      replicaRetryLimit: 0
      replicaTimeout: 604800
      secrets: workerSecrets
      registries: workerRegistries
    }
    template: {
      containers: [
        {
          name: 'worker'
          image: workerImage
          command: [
            'sh'
            '-c'
            'SWATHMILL_WORKER_NAME=$CONTAINER_APP_JOB_EXECUTION_NAME ${placeSettings[at]} exec python -P -m worker'
          ]
          env: workerEnvironment
          resources: {
            cpu: json(string(one.processors))
            memory: '${one.memory}Gi'
          }
          volumeMounts: mounts
        }
      ]
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}]

// Runs uploaded packages for the workers: an app of its own, reached by TCP from within the environment alone. Its
// identity pulls the image; `None` keeps it from the processes.
resource reductions 'Microsoft.App/containerApps@2025-01-01' = if (hasPool) {
  name: poolName
  location: location
  identity: poolIdentity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: poolRegistries
      identitySettings: [
        {
          identity: poolIdentityId
          lifecycle: 'None'
        }
      ]
      ingress: {
        external: false
        transport: 'tcp'
        targetPort: runnerPort
        exposedPort: runnerPort
      }
    }
    template: {
      terminationGracePeriodSeconds: 600
      containers: [
        {
          name: 'runner'
          image: runnerImage
          command: [
            'python'
            '-P'
            '-m'
            'worker.pool'
          ]
          env: runnerPlain
          resources: {
            cpu: json(string(slots))
            memory: '${slots * 2}Gi'
          }
          volumeMounts: [
            scratchMount
          ]
          probes: probes
        }
      ]
      scale: {
        minReplicas: leastRunners
        maxReplicas: max(1, mostRunners)
        rules: [
          {
            name: 'runs'
            tcp: {
              metadata: {
                concurrentConnections: string(slots)
              }
            }
          }
        ]
      }
      volumes: [
        scratch
      ]
    }
  }
}

output portalUrl string = portalUrl
output portalName string = portalName
output portalId string = portal.id
output managerId string = manager.id
output workerId string = worker.id
output workerJobId string = workersAsJobs ? workerJob.id : ''
output placeJobIds array = [for (one, at) in workerPlaces: workersAsJobs ? placeJobs[at].id : '']
output poolId string = hasPool ? reductions.id : ''
