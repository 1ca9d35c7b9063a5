// Swathmill in Azure: one portal, service managers, as many workers as the work wants, and what they
// lean on. Nothing but the portal is reachable from outside; no key of the storage account exists.
//
// `swathmill deploy GROUP` deploys it, with the image built by registry.bicep's registry. The parameters are in
// development.bicepparam and production.bicepparam.
targetScope = 'resourceGroup'

@description('Region of every resource.')
param location string = resourceGroup().location

@description('Short name that every resource is named after.')
@minLength(3)
@maxLength(11)
param name string = 'swathmill'

@description('Image made from infra/Containerfile, with its registry and tag or digest.')
@minLength(1)
param image string

@description('Image of the workers, made of the same recipe with `--target worker`; empty: the one above, as where workers run uploaded packages themselves (mostRunners 0). It is half as large, so a new replica starts sooner.')
param workerImage string = ''

@description('Image of the reduction pool, with `--target runner`; empty: the one above.')
param runnerImage string = ''

@description('Registry that the identity pulls the image from, as in REGISTRY.azurecr.io; empty: the image is public. The identities of the service, of the workers and of the reduction pool need AcrPull there.')
param registryServer string = ''

@description('Key that signs sign-in links and sessions; at least 32 characters. Empty with keepSecrets: the one in the vault.')
@secure()
param signingSecret string = ''

@description('Leave a secret as it is in the vault when none is given here.')
param keepSecrets bool = false

@description('Take over the vault of this name that was deleted with its group.')
param recoverVault bool = false

@description('Mail server as a URL, smtp+starttls://USER@HOST:587; empty: Azure Communication Services where mailApplicationId is given, else mail stays in the outbox.')
param smtpUrl string = ''

@description('Password at the mail server.')
@secure()
param smtpPassword string = ''

@description('Secret that an OpenID provider has given the portal; SWATHMILL_OIDC_* in settings name the provider.')
@secure()
param oidcClientSecret string = ''

@description('Sender of every mail.')
param mailFrom string = 'swathmill@localhost'

@description('Application of Microsoft Entra that signs in at Azure Communication Services; its secret is smtpPassword.')
param mailApplicationId string = ''

@description('Object id of the service principal of that application.')
param mailPrincipalId string = ''

@description('Where Azure Communication Services keeps messages.')
param mailDataLocation string = 'Europe'

@description('Sources of granules in order, as in folder,cmr; the manager does not start without any.')
@minLength(1)
param sources string

@description('Resource id of a storage account with an NFS share of granules, mounted read-only at /archive; empty: none. A private end is made for it.')
param archiveAccountId string = ''

@description('Name of that share.')
param archiveShare string = ''

@description('fsspec URL of granules, as in abfs://container/folder, where there is no share; empty: none.')
param archiveUrl string = ''

@description('NASA Earthdata Login token, for downloads from NASA.')
@secure()
param earthdataToken string = ''

@description('Most worker replicas. A subscription has 100 processors for an environment until more are asked for.')
@minValue(1)
@maxValue(1000)
param mostWorkers int = 20

@description('Fewest worker replicas.')
@minValue(0)
param leastWorkers int = 1

@description('Workers are executions of a job that `swathmill fleet container-apps:WORKERJOBID` starts and nobody scales in, in place of replicas of an app: for attempts over nine minutes.')
param workersAsJobs bool = false

@description('Workers of places (SWATHMILL_WORK_PLACES in settings), as in {place: \'gpu\', slots: 1, processors: 8, memory: 56, least: 0, most: 4, profile: \'gpu\'}: attempts at once, processors and GiB of a replica, fewest and most replicas; without a profile they run on Consumption.')
param workerPlaces array = []

@description('Further workload profiles of the environment, as in {name: \'gpu\', workloadProfileType: \'Consumption-GPU-NC8as-T4\'}, for workers of places.')
param workloadProfiles array = []

@description('Most replicas of the reduction pool, which runs uploaded packages apart from all data; 0: workers run them themselves.')
@minValue(0)
@maxValue(1000)
param mostRunners int = 10

@description('Fewest replicas of the reduction pool.')
@minValue(0)
param leastRunners int = 0

@description('Attempts one worker replica runs at once; it has as many processors.')
@allowed([
  1
  2
  4
])
param slots int = 2

@description('Service managers: one acts, the others stand by.')
@minValue(1)
@maxValue(3)
param managers int = 2

@description('Redundancy of storage: Standard_ZRS in three zones, Standard_LRS in one.')
param storageSku string = 'Standard_ZRS'

@description('Memory and throughput of Azure Managed Redis.')
param redisSku string = 'Balanced_B0'

@description('A second copy of the Redis server.')
param redisHighAvailability bool = true

@description('Private DNS zone of Azure Managed Redis; other clouds than the public one have their own.')
param redisZone string = 'privatelink.redis.azure.net'

@description('Further settings by name, as in {SWATHMILL_RESULT_DAYS: 60}; docs/settings.md lists all.')
param settings object = {}

@description('Object id of the Microsoft Entra group whose members may read the logs and the vault; empty: nobody more.')
param operators string = ''

@description('Mail address that alerts go to; empty: no alerts.')
param alertMail string = ''

module identity 'identity.bicep' = {
  name: 'identity'
  params: {
    location: location
    name: name
  }
}

module workerIdentity 'identity.bicep' = {
  name: 'identity-worker'
  params: {
    location: location
    name: '${name}-worker'
  }
}

module poolIdentity 'identity.bicep' = {
  name: 'identity-pool'
  params: {
    location: location
    name: '${name}-pool'
  }
}

module logs 'logs.bicep' = {
  name: 'logs'
  params: {
    location: location
    name: name
    operators: operators
  }
}

module network 'network.bicep' = {
  name: 'network'
  params: {
    location: location
    name: name
  }
}

var linkMinutes = settings[?'SWATHMILL_RESULT_LINK_MINUTES'] ?? '0'

module storage 'storage.bicep' = {
  name: 'storage'
  params: {
    openToLinks: !contains(['', '0', '0.0'], string(linkMinutes))
    workerPrincipalId: workerIdentity.outputs.principalId
    location: location
    name: name
    sku: storageSku
    principalId: identity.outputs.principalId
    workspaceId: logs.outputs.workspaceId
    endpointSubnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
  }
}

module vault 'vault.bicep' = {
  name: 'vault'
  params: {
    location: location
    name: name
    principalId: identity.outputs.principalId
    workspaceId: logs.outputs.workspaceId
    endpointSubnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
    operators: operators
    keepSecrets: keepSecrets
    recoverVault: recoverVault
    signingSecret: signingSecret
    smtpPassword: smtpPassword
    oidcClientSecret: oidcClientSecret
    earthdataToken: earthdataToken
  }
}

module redis 'redis.bicep' = {
  name: 'redis'
  params: {
    location: location
    name: name
    sku: redisSku
    highAvailability: redisHighAvailability
    zone: redisZone
    vaultName: vault.outputs.vaultName
    endpointSubnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
  }
}

// A worker's identity reads these secrets, and not the key that signs sessions.
module workerSecrets 'secret-reader.bicep' = [for secret in ['redis-url', 'redis-key', 'earthdata-token']: {
  name: 'reader-${secret}'
  params: {
    vaultName: vault.outputs.vaultName
    name: secret
    principalId: workerIdentity.outputs.principalId
  }
  dependsOn: [
    redis
  ]
}]

module mail 'mail.bicep' = if (!empty(mailApplicationId)) {
  name: 'mail'
  params: {
    name: name
    applicationId: mailApplicationId
    principalId: mailPrincipalId
    dataLocation: mailDataLocation
  }
}

module archiveEndpoint 'private-endpoint.bicep' = if (!empty(archiveAccountId)) {
  name: 'endpoint-archive'
  params: {
    location: location
    name: '${name}-archive-pe'
    targetId: archiveAccountId
    group: 'file'
    zone: 'privatelink.file.${environment().suffixes.storage}'
    subnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
  }
}

var archiveAccount = last(split(archiveAccountId, '/'))
var azureMail = !empty(mailApplicationId) && empty(smtpUrl)

module apps 'apps.bicep' = {
  name: 'apps'
  params: {
    location: location
    name: name
    image: image
    identityId: identity.outputs.identityId
    clientId: identity.outputs.clientId
    workerIdentityId: workerIdentity.outputs.identityId
    workerClientId: workerIdentity.outputs.clientId
    poolIdentityId: poolIdentity.outputs.identityId
    workspaceName: logs.outputs.workspaceName
    appSubnetId: network.outputs.appSubnetId
    storage: storage.outputs.endpoints
    vaultUri: vault.outputs.vaultUri
    redisHost: redis.outputs.host
    redisPort: redis.outputs.port
    redisUrlSecretUri: redis.outputs.urlSecretUri
    redisKeySecretUri: redis.outputs.keySecretUri
    smtpUrl: azureMail ? 'smtp+starttls://${uriComponent(mail.outputs.user)}@${mail.outputs.host}:587' : smtpUrl
    mailFrom: azureMail ? mail.outputs.sender : mailFrom
    archiveServer: empty(archiveAccountId) ? '' : '${archiveAccount}.file.${environment().suffixes.storage}'
    archiveShare: empty(archiveAccountId) ? '' : '/${archiveAccount}/${archiveShare}'
    archiveUrl: archiveUrl
    sources: sources
    leastWorkers: leastWorkers
    mostWorkers: mostWorkers
    workerImage: empty(workerImage) || mostRunners == 0 ? image : workerImage
    runnerImage: empty(runnerImage) ? image : runnerImage
    workersAsJobs: workersAsJobs
    workerPlaces: workerPlaces
    workloadProfiles: workloadProfiles
    leastRunners: leastRunners
    mostRunners: mostRunners
    managers: managers
    slots: slots
    settings: settings
    registryServer: registryServer
  }
  dependsOn: [
    archiveEndpoint
    workerSecrets
  ]
}

module alerts 'alerts.bicep' = if (!empty(alertMail)) {
  name: 'alerts'
  params: {
    location: location
    name: name
    workspaceId: logs.outputs.workspaceId
    portalId: apps.outputs.portalId
    managerId: apps.outputs.managerId
    workerId: apps.outputs.workerId
    poolId: apps.outputs.poolId
    storageId: storage.outputs.accountId
    mail: alertMail
  }
}

output portalUrl string = apps.outputs.portalUrl
output portalName string = apps.outputs.portalName
output workerJobId string = apps.outputs.workerJobId
output placeJobIds array = apps.outputs.placeJobIds
