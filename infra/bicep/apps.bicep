// The processes of `swathmill up`, from one image: portal, manager, workers.
param location string
param name string
param image string
param identityId string
param clientId string
param workspaceName string
param appSubnetId string
param storageAccount string
param vaultUri string
param redisHost string
param redisPort int
param redisUrlSecretUri string
param redisKeySecretUri string
param smtpHost string
param smtpPort int
param smtpUser string
param mailFrom string
param archiveServer string
param archiveShare string
param archiveUrl string
param sources string
param mostWorkers int
param managers int
param registryServer string

@description('Attempts one worker replica runs at once; it has as many processors.')
param slots int = 2

var portalName = '${name}-portal'
var portalPort = 8000

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' existing = {
  name: workspaceName
}

resource appEnvironment 'Microsoft.App/managedEnvironments@2024-03-01' = {
  name: '${name}-env'
  location: location
  properties: {
    vnetConfiguration: {
      infrastructureSubnetId: appSubnetId
      internal: false
    }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
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

// Without a server the image is public, and no identity pulls it.
var privateRegistry = [
  {
    server: registryServer
    identity: identityId
  }
]
var registries = empty(registryServer) ? [] : privateRegistry

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
var signingSecrets = [
  {
    name: 'signing-secret'
    keyVaultUrl: '${vaultUri}secrets/signing-secret'
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

// Named as in the class Settings and in docker-compose.yml; AZURE_CLIENT_ID tells Azure's SDKs which
// identity to use.
var settings = [
  {
    name: 'AZURE_CLIENT_ID'
    value: clientId
  }
  {
    name: 'SWATHMILL_DATA_DIR'
    value: '/data'
  }
  {
    name: 'SWATHMILL_STORAGE'
    value: storageAccount
  }
  {
    name: 'SWATHMILL_REDIS_URL'
    secretRef: 'redis-url'
  }
  {
    name: 'SWATHMILL_ARCHIVE'
    value: archiveFolder
  }
  {
    name: 'SWATHMILL_SOURCES'
    value: sources
  }
  {
    name: 'SWATHMILL_EARTHDATA_TOKEN'
    secretRef: 'earthdata-token'
  }
  {
    name: 'SWATHMILL_PORTAL_URL'
    value: portalUrl
  }
  {
    name: 'SWATHMILL_PORTAL_HOST'
    value: '0.0.0.0'
  }
  {
    name: 'SWATHMILL_PORTAL_PORT'
    value: string(portalPort)
  }
  {
    name: 'SWATHMILL_SLOTS'
    value: string(slots)
  }
  {
    name: 'SWATHMILL_ATTEMPT_MEMORY_GB'
    value: '1.8'
  }
  {
    name: 'SWATHMILL_CACHE_GB'
    value: '2'
  }
  {
    name: 'SWATHMILL_GRACE_SECONDS'
    value: '540'
  }
  {
    name: 'SWATHMILL_MAX_TASKS'
    value: '2000000'
  }
  {
    name: 'SWATHMILL_LOG_LEVEL'
    value: 'info'
  }
  {
    name: 'SWATHMILL_SANDBOX' // a container of Container Apps can make no namespaces
    value: 'limits'
  }
]
// Secrets go only where they are used: a worker runs other people's programs.
var signing = [
  {
    name: 'SWATHMILL_SECRET'
    secretRef: 'signing-secret'
  }
  {
    name: 'SWATHMILL_SMTP_HOST'
    value: smtpHost
  }
]
var mail = [
  {
    name: 'SWATHMILL_SMTP_PORT'
    value: string(smtpPort)
  }
  {
    name: 'SWATHMILL_SMTP_USER'
    value: smtpUser
  }
  {
    name: 'SWATHMILL_SMTP_PASSWORD'
    secretRef: 'smtp-password'
  }
  {
    name: 'SWATHMILL_SMTP_TLS'
    value: 'starttls'
  }
  {
    name: 'SWATHMILL_MAIL_FROM'
    value: mailFrom
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

resource portal 'Microsoft.App/containerApps@2024-03-01' = {
  name: portalName
  location: location
  identity: identity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      secrets: concat(secrets, signingSecrets)
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
          env: concat(settings, signing)
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          volumeMounts: mounts
          probes: [
            {
              type: 'Readiness'
              httpGet: {
                path: '/livez'
                port: portalPort
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

resource manager 'Microsoft.App/containerApps@2024-03-01' = {
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
          env: concat(settings, signing, mail)
          resources: {
            cpu: json('1')
            memory: '2Gi'
          }
          volumeMounts: mounts
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

resource worker 'Microsoft.App/containerApps@2024-03-01' = {
  name: '${name}-worker'
  location: location
  identity: identity
  properties: {
    environmentId: appEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      secrets: secrets
      registries: registries
    }
    template: {
      // The longest that Container Apps allows: a replica that is scaled in finishes its attempts.
      terminationGracePeriodSeconds: 600
      containers: [
        {
          name: 'worker'
          image: image
          command: [
            'python'
            '-P'
            '-m'
            'worker'
          ]
          env: settings
          resources: {
            cpu: json(string(slots))
            memory: '${slots * 2}Gi'
          }
          volumeMounts: mounts
        }
      ]
      scale: {
        minReplicas: 1
        maxReplicas: mostWorkers
        rules: [
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
      }
      volumes: volumes
    }
  }
  dependsOn: [
    archive
  ]
}

output portalUrl string = portalUrl
